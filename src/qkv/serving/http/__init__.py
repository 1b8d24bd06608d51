"""The ASGI application: OpenAI's APIs and ours, limits, and the page."""
