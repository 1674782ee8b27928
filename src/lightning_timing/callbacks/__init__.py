"""The callbacks: the only place that knows Lightning."""
