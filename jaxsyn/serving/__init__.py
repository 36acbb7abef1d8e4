"""HTTP service for trained runs; docs/serving.md describes its interface.

Modules from the bottom up: `requests` (limits and checks of requests), `reading`
(parsing in worker processes), `runs`, `batching` (the thread that uses the devices),
`metrics`, `service`, `app` (paths), `network_policy` (hosts, origins, headers),
`server` (socket, signals), `warm` (compilation before the first request).
"""
