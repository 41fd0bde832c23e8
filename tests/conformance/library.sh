#!/usr/bin/env bash
# The tests of our client library, which `cargo test` runs against our broker, run against Kafka: the same
# assertions hold there, so it is a Kafka client, not one of ours only.
#   library.sh [TEST …]      default: client_admin, client_consumer
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(client_admin client_consumer)   # the commands are compared on Kafka by shims.sh
command -v mvn > /dev/null || { skip library 'no mvn on this machine'; summary; exit; }
start_broker kafka "$work/kafka" || { summary; exit; }
export RINGLOG_TEST_BOOTSTRAP=$bootstrap
for test in "${tests[@]}"; do check "kafka/$test" 240 cargo test --quiet --manifest-path "$root/Cargo.toml" --test "$test" -- --include-ignored || true; done
stop_broker || failed=$((failed + 1))
summary
