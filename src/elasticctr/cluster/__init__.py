"""How the processes of a job are started, placed, watched and restarted: one file per engine behind one interface."""
