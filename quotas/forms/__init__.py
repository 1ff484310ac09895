"""Forms for owners and operators."""
