"""The disks a bookie was given: who it is on them, where files begin, and how full they are."""
