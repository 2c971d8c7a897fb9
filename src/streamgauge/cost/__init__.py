"""What training costs and when it happens: event clock, FLOP counter, energy counters."""
