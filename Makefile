# Everything a user does, one word each. `make help` lists it.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

# The first of these that is Python 3.11 or 3.12, or python3, so that the error below can name what it is.
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' >/dev/null 2>&1 && echo "$$p" && exit; \
	done; echo python3)
TORCH_INDEX ?=
SEEDS ?= 0
TABLE ?=
WORKERS ?= 2
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
TORCH := $(shell sed -n 's/^\(torch==.*\)$$/\1/p' constraints.txt)
EXPERIMENTS ?= hnn_prefix10_rnn_eucl,hnn_prefix10_rnn_hyp_eucl_mlr,hnn_prefix10_rnn_hyp,hnn_prefix10_gru_eucl,hnn_prefix10_gru_hyp_eucl_mlr,hnn_prefix10_gru_hyp

.PHONY: help setup run test test-long test-all lint data reproduce tune collect tables check-tables figures bench kernels numerics composability clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sort | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'
	@echo
	@echo "  PYTHON=python3.12   the interpreter for .venv (3.11 or 3.12)"
	@echo "  TORCH_INDEX=URL     where setup takes torch from, such as PyTorch's CPU or CUDA wheels"
	@echo "  SEEDS=0,1,2         the seeds of make reproduce"
	@echo "  TABLE=NAME          the table of make reproduce and tune: a file of results/published/, as in TABLE=hyfi_table5_crowd"
	@echo "  EXPERIMENTS=...     or experiments, as in EXPERIMENTS='glob(hyfi_crowd_*)' or EXPERIMENTS=name,name"
	@echo "  WORKERS=2           test processes"
	@echo "  ARGS='...'          more words for the command behind run, test, test-long, test-all, collect, tables, reproduce, tune, figures, bench, numerics"

setup: $(STAMP) ## make .venv and install everything into it (again only after a change of versions)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null || { \
		echo "error: this project needs Python 3.11 or 3.12, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." >&2; \
		echo "Install one of them and name it: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.12" >&2; exit 1; }
	@rm -f $(STAMP)
	@$(PY) -c 'import pip, sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' >/dev/null 2>&1 \
		|| $(PYTHON) -m venv --clear $(VENV)
	$(PY) -m pip install $(if $(TORCH_INDEX),--index-url '$(TORCH_INDEX)') '$(TORCH)'
	$(PY) -m pip install -c constraints.txt -e '.[train,dev]'
	@touch $(STAMP)

run: setup ## train the quickstart (PREFIX-10, Möbius GRU on the Poincaré ball; a few minutes on 2 cores)
	$(PY) run.py experiment=quickstart $(ARGS)

test: setup ## the tests that run in minutes on a CPU
	$(PY) -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

test-long: setup ## the tests that are left out of test because they take seconds, or are some of many cases
	$(PY) -m pytest -n $(WORKERS) --dist loadfile -m "long and not slow and not gpu" $(ARGS)

test-all: setup ## every test, the slow ones and, where there is a GPU, the GPU ones
	$(PY) -m pytest -n $(WORKERS) --dist loadfile -m "" $(ARGS)

lint: setup ## ruff: style and common mistakes; mypy: types
	$(PY) -m ruff check .
	$(PY) -m mypy

data: ## say which data sets the tasks need and where they are looked for
	@echo "PREFIX-10, -30 and -50 need no download: the first run generates them from the seed in the config and keeps them"
	@echo "in paths.cache_dir. Other data are looked for in $${HYPERBOLIC_DATA:-data} (HYPERBOLIC_DATA or paths.data_dir=...)."
	@echo "Entity typing (task=ultrafine) reads ultrafine/crowd/{train,dev,test}.json, more of that release where it is there, and"
	@echo "word vectors. What is missing is fetched into that folder with"
	@echo "  python scripts/download.py ultrafine        Choi et al. 2018, about 0.7 GB"
	@echo "  python scripts/download.py glove            GloVe 6B, 0.9 GB"
	@echo "  python scripts/download.py poincare_glove   Tifrea et al. 2019, where its authors' share still answers"
	@echo "OntoNotes (task=ontonotes) has a licence: put g_dev.json and g_test.json, and augmented_train.json, into ontonotes/."
	@echo "Knowledge graphs (task=wn18rr, fb15k237, umls) read WN18RR/, FB15k-237/ or UMLS/ with train.txt, valid.txt and test.txt:"
	@echo "  python scripts/download.py wn18rr | fb15k237 | umls; task=kg reads any such folder: data.dir=my_graph."
	@echo "SNLI and MultiNLI (task=snli, task=multinli) and WordNet (task=poincare_embeddings, task=wordnet_subtree):"
	@echo "  python scripts/download.py snli | multinli | wordnet"
	@echo "Texts with classes (Zhang et al. 2015), ag_news_csv and others: python scripts/download.py --help names them."
	@echo "task=nli reads any pairs of sentences in their formats: data.dir=my_pairs."
	@echo "Graphs (task=airport_lp, cora_nc, ...), translation (task=multi30k, tatoeba) and trees for task=probing:"
	@echo "  python scripts/download.py graphs | multi30k | tatoeba_de_en | ud_english_ewt"
	@echo "IWSLT'14 and WMT'14 (task=iwslt14, wmt14) come from fairseq's scripts, see tasks/translation/README.md."
	@echo "task=poincare_glove learns word vectors from any text: task.data.file=corpus.txt. The *_toy tasks need nothing."

reproduce: setup ## run the cells of a TABLE, or EXPERIMENTS, once for each seed in SEEDS (else PREFIX-10's six)
	$(if $(TABLE),$(PY) -m scripts.reproduce '$(TABLE)' '$(SEEDS)' $(ARGS),$(PY) run.py -m 'experiment=$(EXPERIMENTS)' 'seed=$(SEEDS)' $(ARGS))

tune: setup ## search the settings of each cell of a TABLE, as its `tuning` says; make collect keeps the trials
	$(PY) -m scripts.reproduce '$(TABLE)' --tune $(ARGS)

collect: setup ## check the records under outputs/ and copy the good ones to results/runs/
	$(PY) -m scripts.collect $(ARGS)

tables: setup ## make results/tables/ from results/runs/ and print it (ARGS=--missing: print what runs the cells without a record)
	$(PY) -m scripts.tables $(ARGS)
	$(if $(findstring --missing,$(ARGS)),,$(PY) -m scripts.readme $(filter --check,$(ARGS)))

check-tables: setup ## fail if a committed table is not what the records give
	$(PY) -m scripts.tables --check
	$(PY) -m scripts.readme --check

figures: setup ## draw trained models into their folders (ARGS='all outputs/RUN_FOLDER ...'; ARGS=--list names the figures)
	$(PY) scripts/figures.py $(ARGS)

bench: setup ## time each operation against its Euclidean twin and other libraries (ARGS='--quick --check' for a minute)
	$(PY) scripts/bench.py $(ARGS)

kernels: setup ## compile the C++ kernels now, and not at the first run
	$(PY) -m hyperbolic.native

composability: setup ## what of PyTorch every layer goes with, into results/composability.json (an hour)
	$(PY) -W ignore -m scripts.composability $(ARGS)

numerics: setup ## errors against mpmath, ours and other libraries', into results/numerics.md; fails above the target
	$(PY) -m scripts.numerics $(ARGS)

clean: ## remove .venv and caches; data, outputs and results stay
	rm -rf $(VENV) build .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path './data/*' -not -path './outputs/*' -prune -exec rm -rf {} +
