"""What a Dagster project is made of to replicate: resources, sensors, checks, and what is shown of subscriptions."""
