"""TCP between simulated hosts: ``network`` connects them and breaks links, ``stream`` is one end
of a connection as an asyncio transport, ``pipe`` what is on its way in one direction."""
