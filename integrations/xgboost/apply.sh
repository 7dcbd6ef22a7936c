#!/usr/bin/env bash
# apply.sh SOURCE: adds the communicator "unisono" to a source tree of XGBoost (3.4 or later). Adds
# two files, and four lines to two of XGBoost's own. A second run changes nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$1
group=$source/src/collective/comm_group.cc
learner=$source/src/learner.cc
cp "$here/unisono_xgboost.h" "$here/unisono_xgboost.cc" "$source/src/collective/"
# add FILE TEXT LINE...: after the only line that has TEXT, unless it has been added.
add() {
    local file=$1 text=$2 line=$3
    grep -qF -- "$line" "$file" && return
    [ "$(grep -cF -- "$text" "$file")" = 1 ] || { echo "$file: expected one line with: $text" >&2; exit 1; }
    TEXT=$text LINE=$line awk '{ print } index($0, ENVIRON["TEXT"]) { print ENVIRON["LINE"] }' "$file" > "$file.new"
    mv "$file.new" "$file"
}
add "$group" '#include "comm.h" ' '#include "unisono_xgboost.h"'
add "$group" 'auto task_id = get_param(' '  if (type == "unisono") return new CommGroup{std::make_shared<UnisonoComm>(get_param("dmlc_tracker_uri", std::string{}, String{}), static_cast<std::int32_t>(get_param("dmlc_tracker_port", std::int64_t{0}, Integer{})), std::chrono::seconds{timeout}, static_cast<std::int32_t>(retry), task_id, get_param("unisono_transport", std::string{"auto"}, String{})), std::make_shared<UnisonoColl>()};'
add "$learner" '#include "collective/broadcast.h"' '#include "collective/unisono_xgboost.h"'
add "$learner" 'obj_->GetGradient(preds, info, iter, out_gpair);' '    if (ctx_.IsCPU()) collective::UnisonoRound(reinterpret_cast<float*>(out_gpair->HostView().Values().data()), out_gpair->Size());'
