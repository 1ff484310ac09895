"""What owners and operators fill in."""
