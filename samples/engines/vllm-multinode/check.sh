#!/bin/sh
# Sends a request and looks at the answer. The address is that of the Service, or of: kubectl port-forward svc/vllm 8080:80
exec python3 "$(dirname "$0")/../ask.py" "${1:-http://localhost:8080}" --model "${MODEL:-chat}" --chat
