"""What a person or pipeline asks for: read, checked, judged before it is submitted, and said again."""
