"""Health of hardware: signs of faults, and quarantines of nodes and cards."""
