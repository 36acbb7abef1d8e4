"""Several processes train one model: is it the same one, and how do they end?

  python -m benchmarks.hosts --config configs/quickstart.py:pascal

Real commands on this machine, their devices simulated, each process with a part
of them. The first table compares runs over several processes with that of one,
by layout: the largest relative difference of anything logged, and whether
translations are equal. The second moves runs: half of the steps over some
processes, the other half over others, against a run that stayed. The third
stops runs, in every way that there is: the seconds until all processes are
gone, their exit statuses, the last checkpoint, and how far the run that goes
on, in one process, is from one that never stopped.
"""
