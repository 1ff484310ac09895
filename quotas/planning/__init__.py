"""The planning pass: lock, snapshot, the engine's plan and its records; claims, ledger entries and replay of old passes."""
