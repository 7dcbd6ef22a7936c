#!/bin/sh
# SageMaker, in an image without Amazon's training toolkit. SageMaker describes the hosts in a file.
# This script sets the toolkit's variables from it. One process per host, one rank each:
#     sagemaker_entry.sh /train --epochs 20
set -eu
config=${SM_RESOURCE_CONFIG_FILE:-/opt/ml/input/config/resourceconfig.json}
flat=$(tr -d '\n' <"$config")
SM_CURRENT_HOST=$(printf %s "$flat" | sed -n 's/.*"current_host" *: *"\([^"]*\)".*/\1/p')
SM_HOSTS=$(printf %s "$flat" | sed -n 's/.*"hosts" *: *\(\[[^]]*\]\).*/\1/p')
if [ -z "$SM_CURRENT_HOST" ] || [ -z "$SM_HOSTS" ]; then
    echo "sagemaker_entry: $config has no current_host or no hosts" >&2
    exit 1
fi
export SM_CURRENT_HOST SM_HOSTS
exec "$@"
