"""Records about bookies: their registration, the cookie that names their disks, their racks."""
