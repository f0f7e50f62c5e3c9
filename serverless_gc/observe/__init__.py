"""What happened: events, progress, timeline, report."""
