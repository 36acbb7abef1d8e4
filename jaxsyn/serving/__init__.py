"""Trained runs behind HTTP: docs/serving.md has the interface.

Reading order: `limits`, `refusal`, `reading` (parsers, in processes), `runs` (what is
served), `batching` (requests of many clients, translated together), `asked` and
`answers` (JSON in and out), `metrics`, `service`, `body`, `app` (the paths), `guard`
(who may ask), `server` (a port), `warm` (what is compiled before).
"""
