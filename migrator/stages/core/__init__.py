"""What several stages share: ownership, pace, parallel pages, shares, checks, the doctor."""
