"""The pages of workloads: one page, one template, one view."""
