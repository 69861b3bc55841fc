"""What auto-recovery decides, as pure functions of facts: no clock, no chance, no IO.

``fragments`` says which entries belong on which bookie, ``findings`` what is wrong with a copy,
``replicas`` how many copies there are, ``repair_plan`` which bookie gets them, ``adherence``
whether bookies stand in enough racks, ``lost_bookies`` when the loss of a bookie is acted on.
"""
