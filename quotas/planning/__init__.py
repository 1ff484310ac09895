"""The planning pass: lock, snapshot, the engine's plan, and what is written of it; claims, loan entries, old passes again."""
