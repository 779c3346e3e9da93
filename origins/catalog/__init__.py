"""Tables that their catalog gives by their names only."""
