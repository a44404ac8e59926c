"""The commands of the stages: `<group>.py` declares (click only), `<group>_work.py` does; and what several of
them share."""
