#!/usr/bin/env bash
# ./run.sh [quickstart|multi30k|enja|test|help] [options for the training]
#
#   quickstart   (default) a generated corpus with trees, three systems, one
#                table; no download, minutes on two CPU cores; others by
#                SYSTEMS=dbsa,multitask
#   multi30k     English-German captions from raw text; RAW_DIR=folder of the
#                .gz files where they should not be downloaded; SYSTEMS and
#                MINUTES (of training at most, each) can be set; for systems
#                that read target trees too, TARGET_PARSER=file.udpipe
#   enja         the English-Japanese small_parallel_enja corpus; needs RAW_DIR
#   test         the tests, as CI runs them
#
# Makes .venv and installs requirements.txt into it. Every stage can be run
# again: what is done is not done twice, what was interrupted goes on.
set -euo pipefail
cd "$(dirname "$0")"

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }

install() {
  local stamp
  stamp=$(cat requirements.txt pyproject.toml | cksum)
  [ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
  if [ "$(cat .venv/installed 2>/dev/null)" != "$stamp" ]; then
    echo "== installing into .venv"
    .venv/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
    echo "$stamp" > .venv/installed
  fi
  PATH="$PWD/.venv/bin:$PATH"
}

# train_and_score CONFIG RUNS SPLIT SOURCE REFERENCE SYSTEMS [options]
train_and_score() {
  local config=$1 runs=$2 split=$3 source=$4 reference=$5 systems=$6 system
  shift 6
  local hypotheses=()
  for system in ${systems//,/ }; do
    echo "== training $system"
    python -m jaxsyn.train --config "$config:$system" \
      --workdir "$runs/$system" "$@"
  done
  for system in ${systems//,/ }; do
    echo "== translating $split with $system"
    python -m jaxsyn.translate --workdir "$runs/$system" --input "$source" \
      --output "$runs/$system/$split.txt"
    hypotheses+=(--hypothesis "$runs/$system/$split.txt")
  done
  echo "== $split"
  python -m jaxsyn.score --reference "$reference" "${hypotheses[@]}" \
    --metrics bleu,chrf,ter,exact \
    | tee "$runs/$split.scores.txt"
}

quickstart() {
  local raw=data/quickstart/raw runs=runs/quickstart
  # The report is written last; older corpora have no trees of the target.
  if [ ! -f "$raw/report.json" ] || [ ! -f "$raw/test.qaa.conllu" ]; then
    echo "== writing the corpus and training its parser"
    python -m preprocess.quickstart --output "$raw"
  fi
  echo "== preparing"
  python -m preprocess.build --config configs/quickstart.py
  train_and_score configs/quickstart.py "$runs" test "$raw/test.en" \
    "$raw/test.qaa" "${SYSTEMS:-transformer,pascal,pascal_random_tree}" "$@"
}

multi30k() {
  local data=data/multi30k_en_de runs=runs/multi30k_en_de split
  local systems=${SYSTEMS:-transformer,pascal} sides="('source',)"
  case $systems in *dbsa* | *sync_attention*) sides="('source','target')" ;; esac
  echo "== preparing"
  python -m preprocess.build --config configs/multi30k_en_de.py \
    ${RAW_DIR:+--raw_dir "$RAW_DIR"} \
    --config.prepare.parse.sides="$sides" \
    ${TARGET_PARSER:+--config.prepare.parse.target_model="$TARGET_PARSER"} \
    ${PARSER:+--config.prepare.parse.source_model="$PARSER"}
  for split in test_2016 test_2017; do
    train_and_score configs/multi30k_en_de.py "$runs" "$split" \
      "$data/text/$split.source.gz" "$data/text/$split.target.gz" "$systems" \
      ${MINUTES:+--config.train.minutes="$MINUTES"} "$@"
  done
}

enja() {
  : "${RAW_DIR:?set it to the folder of train.en.gz, train.ja.gz, dev.en.gz, dev.ja.gz}"
  local data=data/enja runs=runs/enja
  python -m preprocess.build --config configs/enja.py --raw_dir "$RAW_DIR" \
    ${PARSER:+--config.prepare.parse.source_model="$PARSER"}
  train_and_score configs/enja.py "$runs" validation \
    "$data/text/validation.source.gz" "$data/text/validation.target.gz" \
    "${SYSTEMS:-transformer,pascal}" \
    ${MINUTES:+--config.train.minutes="$MINUTES"} "$@"
}

command=${1:-quickstart}
[ $# -gt 0 ] && shift
case $command in
  quickstart | multi30k | enja) install; "$command" "$@" ;;
  test) install; exec python -m pytest -n 2 --dist worksteal "$@" ;;
  help | -h | --help) usage ;;
  *) echo "run.sh: unknown command '$command'" >&2; usage >&2; exit 2 ;;
esac
