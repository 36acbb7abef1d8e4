#!/usr/bin/env bash
# ./run.sh [quickstart|multi30k|enja|test|help] [options for the training]
#
#   quickstart   (default) a generated corpus with trees, three systems, one
#                report; no download, minutes on two CPU cores
#   multi30k     English-German captions from raw text; RAW_DIR=folder of the
#                .gz files where they should not be downloaded; for systems
#                that read target trees too, TARGET_PARSER=file.udpipe
#   enja         the English-Japanese small_parallel_enja corpus; needs RAW_DIR;
#                scored by words of MeCab; TOKENIZER=char: by character
#   test         the tests, as CI runs them
#
# SYSTEMS=dbsa,multitask: others than these; SEEDS=3: so many runs of each;
# MINUTES=30: of training at most, each; METRICS=bleu,ribes; PARSER=file.udpipe:
# of the source. The report of all runs is runs/NAME/report.html.
#
# Makes .venv and installs what is needed into it: the package for quickstart and
# multi30k, also MeCab for enja, all that tests need for test. Every stage can be run
# again: what is done is not done twice, what was interrupted goes on.
set -euo pipefail
cd "$(dirname "$0")"

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }

venv=${VENV:-$PWD/.venv}

# install PACKAGE SIZE: ".", ".[ja]" or ".[dev]", each of which contains those
# before it. $venv/installed names the last one, with a checksum of its bounds.
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
  # The report is written last; older corpora have no trees of the target.
  if [ ! -f "$raw/report.json" ] || [ ! -f "$raw/test.qaa.conllu" ]; then
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
  quickstart | multi30k) install . "98 packages, 1.1 GB"; "$command" "$@" ;;
  enja) install '.[ja]' "100 packages, 1.2 GB"; enja "$@" ;;
  test) install '.[dev]' "260 packages, 2.4 GB"; exec python -m pytest -n 2 --dist worksteal "$@" ;;
  help | -h | --help) usage ;;
  *) echo "run.sh: unknown command '$command'" >&2; usage >&2; exit 2 ;;
esac
