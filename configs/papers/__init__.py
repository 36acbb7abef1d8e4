"""Configs and ablation tables of the papers, one file per paper.

A file contains the tasks and tables of the paper, unknown values and
differences:
  pascal                Bugliarello & Okazaki 2020: six tasks
    results                 PASCAL and other systems
    components              filtering, PASCAL, parent ignoring
    layers                  layer of the scaled heads, 1 to 6
    variance                width of the Gaussian; the parent only
  deps_san              Peng et al., Deps-SAN: two
    results                 Deps-SAN and other systems
    layers                  layers of Deps-SAN
    variance                width of the Gaussian
    sparse                  RS-Sparse, Wink-Sparse and ours
  dependency_relative   Omote, Tamura & Ninomiya 2019: two
    results                 positions, relative depths, or both
    keys_values             relative depths in keys, values or both
    labels                  depth or distance, clipped where; ours
  dbsa                  Deguchi, Tamura & Ninomiya 2021: three
    results                 heads that parse, without and with synchronization
    synchronisation         weight of the synchronisation
  syntax_directed       Chen et al. 2018: one
    results                 windows of a recurrent decoder, one or two
    position                how the predicted position reads the tree

The name of a task follows the file, and then a system or a row of a table:
  jaxsyn prepare --config papers/pascal:nc11_en_de \
    --raw_dir FOLDER
  jaxsyn train --workdir runs/pascal \
    --config papers/pascal:nc11_en_de:pascal
  jaxsyn train --workdir runs/layer_3 \
    --config papers/pascal:nc11_en_de:layers/layer_3
  jaxsyn compare --workdir runs/compared --systems transformer,pascal \
    --config papers/pascal:nc11_en_de
For a missing or wrong name, the error lists the available ones. To use a table
on another dataset, run `jaxsyn compare --systems pascal/layers`, or `Row.on` in
Python. The corpora are not included, and these configs have not been run.
"""
