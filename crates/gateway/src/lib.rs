//! The front door: API keys, caller, routing, CORS, limits, request ids, static files
