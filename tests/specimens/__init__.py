"""Programs under test that several test modules share."""
