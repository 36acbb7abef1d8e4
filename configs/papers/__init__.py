"""Settings and ablation tables of the papers, a file a paper.

A file has the paper's tasks, its tables, and what is unknown or differs:
  pascal                Bugliarello & Okazaki 2020: six tasks
    results                 PASCAL beside its rivals
    components              filtering, PASCAL, parent ignoring
    layers                  layer of the scaled heads, 1 to 6
    variance                width of the Gaussian; the parent only
  deps_san              Peng et al., Deps-SAN: two
    results                 Deps-SAN and its rivals
    layers                  layers of Deps-SAN
    variance                width of the Gaussian
    sparse                  RS-Sparse, Wink-Sparse and ours
  dependency_relative   Omote, Tamura & Ninomiya 2019: two
    results                 positions, relative depths, or both
    keys_values             relative depths in keys, values or both
    labels                  depth or distance, clipped where; ours
  dbsa                  Deguchi, Tamura & Ninomiya 2021: three
    results                 heads that parse; and synchronised ones
    synchronisation         weight of the synchronisation
  syntax_directed       Chen et al. 2018: one
    results                 windows of a recurrent decoder, one or two
    position                how the predicted position reads the tree

After the file stand a task and, if wanted, a system or a row of a table:
  jaxsyn prepare --config papers/pascal:nc11_en_de \
    --raw_dir FOLDER
  jaxsyn train --workdir runs/pascal \
    --config papers/pascal:nc11_en_de:pascal
  jaxsyn train --workdir runs/layer_3 \
    --config papers/pascal:nc11_en_de:layers/layer_3
  jaxsyn compare --workdir runs/compared --systems transformer,pascal \
    --config papers/pascal:nc11_en_de
A name that is missing or wrong lists those there are. The rows of a table on
another data set: `jaxsyn.compare --systems pascal/layers`, or `Row.on` in Python.
None of the corpora is ours to give, and none of these settings has been run.
"""
