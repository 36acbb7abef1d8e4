#!/usr/bin/env bash
# ./run.sh [quickstart|multi30k|enja|test|help] [options of the training]
#
#   quickstart   (default) generates a corpus with trees, trains three systems
#                and writes a report, without downloads, in minutes on two cores
#   multi30k     English-German image captions from raw text; RAW_DIR=folder of
#                the .gz files avoids the download; for systems that read target
#                trees, TARGET_PARSER=file.udpipe
#   enja         the English-Japanese corpus small_parallel_enja; needs RAW_DIR;
#                BLEU is by words of MeCab, or by character with TOKENIZER=char
#   test         the tests, as in CI
#
# Variables: SYSTEMS=dbsa,multitask selects the systems, SEEDS=3 the number of
# runs of each, MINUTES=30 limits the training time of a run, METRICS=bleu,ribes
# selects the metrics, and PARSER=file.udpipe is the parser of the source. The
# report is runs/NAME/report.html.
#
# Creates .venv and installs the package into it, with MeCab for enja and the
# development tools for test. Repeating a command resumes it: finished stages are
# skipped.
set -euo pipefail
cd "$(dirname "$0")"

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }

venv=${VENV:-$PWD/.venv}

# install PACKAGE SIZE: installs ".", ".[ja]" or ".[dev]", each of which includes
# the previous ones. $venv/installed has the last one, with a checksum of the
# version bounds.
install() {
  local package=$1 size=$2 stamp
  stamp=$(cat requirements.txt pyproject.toml | cksum)
  [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
  case "$package in $(cat "$venv/installed" 2>/dev/null)" in
    "$package in $package $stamp" | ". in .[ja] $stamp" | *" in .[dev] $stamp") ;;
    *)
      echo "== installing $package into $venv: about $size"
      "$venv/bin/pip" install --disable-pip-version-check -e "$package"
      echo "$package $stamp" > "$venv/installed"
      ;;
  esac
  PATH="$venv/bin:$PATH"
}

# compare CONFIG RUNS SYSTEMS [options]
compare() {
  local config=$1 runs=$2 systems=$3
  shift 3
  echo "== training, translating, comparing: $systems"
  python -m jaxsyn.compare --config "$config" --workdir "$runs" \
    --systems "$systems" --seeds "${SEEDS:-1}" \
    --metrics "${METRICS:-bleu,chrf,ter,exact}" \
    ${TOKENIZER:+--tokenizer "$TOKENIZER"} \
    ${MINUTES:+--config.train.minutes="$MINUTES"} "$@"
}

quickstart() {
  local raw=data/quickstart/raw runs=runs/quickstart
  # The parser is written last.
  if [ ! -f "$raw/quickstart.udpipe" ]; then
    echo "== writing the corpus and training its parser"
    python -m preprocess.quickstart --output "$raw"
  fi
  echo "== preparing"
  python -m preprocess.build --config configs/quickstart.py
  compare configs/quickstart.py "$runs" \
    "${SYSTEMS:-transformer,pascal,pascal_random_tree}" "$@"
}

multi30k() {
  local runs=runs/multi30k_en_de
  local systems=${SYSTEMS:-transformer,pascal} sides="('source',)"
  case $systems in *dbsa* | *sync_attention*) sides="('source','target')" ;; esac
  echo "== preparing"
  python -m preprocess.build --config configs/multi30k_en_de.py \
    ${RAW_DIR:+--raw_dir "$RAW_DIR"} \
    --config.prepare.parse.sides="$sides" \
    ${TARGET_PARSER:+--config.prepare.parse.target.udpipe.model="$TARGET_PARSER"} \
    ${PARSER:+--config.prepare.parse.source.udpipe.model="$PARSER"}
  compare configs/multi30k_en_de.py "$runs" "$systems" "$@"
}

enja() {
  : "${RAW_DIR:?set it to the folder of train.en.gz, train.ja.gz, dev.en.gz, dev.ja.gz}"
  python -m preprocess.build --config configs/enja.py --raw_dir "$RAW_DIR" \
    ${PARSER:+--config.prepare.parse.source.udpipe.model="$PARSER"}
  METRICS=${METRICS:-bleu,chrf,ribes} \
    compare configs/enja.py runs/enja "${SYSTEMS:-transformer,pascal}" "$@"
}

command=${1:-quickstart}
[ $# -gt 0 ] && shift
case $command in
  quickstart | multi30k) install . "105 packages, 1.3 GB"; "$command" "$@" ;;
  enja) install '.[ja]' "100 packages, 1.2 GB"; enja "$@" ;;
  test) install '.[dev]' "260 packages, 2.4 GB"; exec python -m pytest -n 2 --dist worksteal "$@" ;;
  help | -h | --help) usage ;;
  *) echo "run.sh: unknown command '$command'" >&2; usage >&2; exit 2 ;;
esac
