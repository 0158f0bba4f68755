"""The subscriptions of the state folder, and the iteration that a run has open."""

from ccpr.dagster.replication import Replication

replication = Replication()
