"""Trained runs behind HTTP: docs/serving.md has the interface.

Reading order: `limits`, `refusal`, `runs` (what is served), `batching` (requests of
many clients, translated together), `asked` and `answers` (JSON in and out), `body`,
`service`, `app`, `guard`, `server`.
"""
