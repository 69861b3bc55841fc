"""Records of bookies: the registration of a live one, the cookie of its disks, its rack."""
