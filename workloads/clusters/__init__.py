"""The clusters a pool may live on: `driver_for(cluster)` gives the driver of a Cluster row."""
