#!/usr/bin/env bash
# The broker tests that client libraries ship with themselves, and raw answers compared with Kafka's, for a checkout that
# has the folder with the programs that run them.
#   suites.sh DIR SUITE …     DIR/suites/SUITE (go/franz-go, go/sarama, go/kafka-go, native/rust-clients, native/librdkafka)
#                             is run with --quick against a Ringlog of its own; 'wirediff' means DIR/wirediff
# What the table in suites.md lists as not due is run, and skipped when it fails; a test of that list that passes says so. A
# difference in an answer must be one that wirediff.explained explains.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dir=$1
shift

# judge SUITE FILE   reads the lines of a suite, passes them on with the verdict that counts, and leaves the totals in FILE.
# The tests of the two Rust crates are of one suite, and their names begin with the crate's.
judge() {
  awk -v suite="${1#*/}" -v file="$2" '
    NR == FNR {
      if (split($0, cell, / *\| */) == 5 && cell[3] !~ /^(test|---)$/) {
        many = split(cell[3], globs, " ")
        for (i = 1; i <= many; i++) {
          name = suite == "rust-clients" ? cell[2] "::" globs[i] : globs[i]
          if (suite != "rust-clients" && cell[2] != suite) continue
          gsub(/[.()+?]/, "[&]", name); gsub(/[*]/, ".*", name)
          regex[++n] = "^" name "$"; why[n] = cell[4]
        }
      }
      next
    }
    { split($0, word, " ") }
    word[1] !~ /^(PASS|FAIL|SKIP)$/ { next }
    word[1] != "SKIP" { for (i = 1; i <= n; i++) if (word[2] ~ regex[i]) {
      if (word[1] == "FAIL") { print "SKIP", suite "/" word[2], "not due:", why[i]; count["SKIP"]++; next }
      $0 = $0 " (listed as not due)"; break } }
    { count[word[1]]++; sub(/^[A-Z]+ /, "&" suite "/"); if (word[1] != "SKIP") print }
    END { print count["PASS"] + 0, count["FAIL"] + 0, count["SKIP"] + 0 > file }' "$here/suites.md" -
}

# compare A B EXAMPLE   fails on what cannot be decoded, and on the lines of differences that nothing explains.
compare() {
  local text unexplained
  text=$("$wirediff" -q --advertised "$1" "$2" "$3" 2>&1) || true
  unexplained=$(awk '/^DIFFERENT/ { title = $0; next } /^(FAILED|      )/ { print title ": " $0 }' <<< "$text" |
    grep -vEf <(grep -v '^#' "$explained") || true)
  echo "$unexplained"
  tail -n 1 <<< "$text"
  [ -z "$unexplained" ] && tail -n 1 <<< "$text" | grep -q ' 0 failed'
}
export -f compare
export wirediff=$dir/wirediff/wirediff explained=$here/wirediff.explained

for suite in "$@"; do
  settings=(node.id=1 num.partitions=4 group.initial.rebalance.delay.ms=0 auto.create.topics.enable=true)
  only=()
  case $suite in
    # Their tests of transactions, which are not due, would wait for minutes each.
    go/franz-go) only=(--only '^kadm/|^Test[^T]') ;;
    go/sarama) only=(--only '^Test([^F]|Func[^T])') ;;
    native/rust-clients) settings=(node.id=0 num.partitions=3 group.initial.rebalance.delay.ms=0) ;;
    native/librdkafka) settings=(node.id=1 num.partitions=4 group.initial.rebalance.delay.ms=3000) ;;
    wirediff)
      start_broker kafka "$work/kafka" || continue
      reference=$bootstrap reference_pid=$broker
      # Kafka refuses the first groups while it makes and loads its offsets topic; that is no difference.
      for _ in 1 2 3 4; do "$here/tools.sh" console "$reference" > /dev/null 2>&1 || true; done
      ;;
  esac
  start_broker ringlog "$work/${suite//\//-}" "${settings[@]}" || continue
  if [ "$suite" = wirediff ]; then
    for example in "$dir"/wirediff/examples/*.json; do
      check "wirediff/$(basename "$example" .json)" 300 bash -c 'compare "$@"' compare "$reference" "$bootstrap" "$example" || true
    done
    stop_broker || failed=$((failed + 1))
    broker=$reference_pid reference_pid=''
  else
    timeout --kill-after=5 900 "$dir/suites/$suite" --quick "${only[@]}" "$bootstrap" < /dev/null > "$work/suite.out" 2> "$work/suite.err" &
    running=$!
    wait "$running" || true
    running=''
    judge "$suite" "$work/totals" < "$work/suite.out"
    read -r p f s < "$work/totals"
    [ $((p + f)) -gt 0 ] || { f=1; echo "FAIL $suite ran nothing"; tail -n 5 "$work/suite.err"; }
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  fi
  stop_broker || failed=$((failed + 1))
done
summary
