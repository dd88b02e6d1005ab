#!/bin/sh
# Sends a request and looks at the answer. The address is that of the Service, or of: kubectl port-forward svc/trtllm 8080:80
exec python3 "$(dirname "$0")/../ask.py" "${1:-http://localhost:8080}" --model "${MODEL:-meta-llama/Llama-3.1-405B-Instruct-FP8}" --chat
