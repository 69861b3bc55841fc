"""What the bookie writes to its disks, one module for each layout and version."""
