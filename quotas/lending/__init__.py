"""How much may be lent when: lending windows, and the limit that follows from them."""
