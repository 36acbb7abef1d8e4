"""Settings and ablation tables of the papers.

Settings, each with `get_config(task, system)`; files beside configs/base.py
named paper_PAPER_TASK.py make them data sets' files:
  pascal                Bugliarello & Okazaki 2020: six tasks
  deps_san              Peng et al., Deps-SAN: two
  dependency_relative   Omote, Tamura & Ninomiya 2019: two
  dbsa                  Deguchi, Tamura & Ninomiya 2021: three
  syntax_directed       Chen et al. 2018: one

Ablation tables, each with `TABLE` and `get_config(row)`:
  pascal_results                    PASCAL beside its rivals
  pascal_layers                     layer of the scaled heads, 1 to 6
  pascal_variance                   width of the Gaussian; the parent only
  pascal_components                 filtering, PASCAL, parent ignoring
  deps_san_layers                   layers of Deps-SAN
  deps_san_variance                 width of the Gaussian
  deps_san_sparse                   RS-Sparse, Wink-Sparse and ours
  dependency_relative_keys_values   relative depths in keys, values or both
  dependency_relative_labels        depth or distance, clipped where; ours
  dbsa_results                      heads that parse; and synchronised ones
  dbsa_synchronisation              weight of the synchronisation
  syntax_directed_results           windows of a recurrent decoder, one or two
  syntax_directed_position          how the predicted position reads the tree

One row, prepared and trained (the file alone is the first row):
  python -m preprocess.build --config configs/papers/pascal_layers.py \
    --raw_dir FOLDER
  python -m jaxsyn.train --config configs/papers/pascal_layers.py:layer_3 \
    --workdir runs/layer_3
A wrong name lists the rows. On another data set: `ablation.apply`.
"""
