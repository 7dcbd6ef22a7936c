#ifndef UNISONO_LIGHTGBM_H
#define UNISONO_LIGHTGBM_H

/**
 * \file
 * LightGBM's network over a world of unisono/c.h. For C and C++ programs; Python has the package unisono_lightgbm.
 *
 *     unisono_world* world;
 *     unisono_join(&world, NULL);
 *     unisono_lightgbm_use(world, &LGBM_NetworkInitWithFunctions);
 *     ... LGBM_BoosterCreate(..., "tree_learner=data num_machines=4 pre_partition=true ...", ...), LGBM_BoosterUpdateOneIter(...)
 *     LGBM_NetworkFree();
 *     unisono_leave(world);
 *
 * An error of the network is the error of the call of LightGBM that needed it: the call returns -1, and LGBM_GetLastError() has the text,
 * which names the rank at fault.
 */

#include <unisono/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/** LGBM_NetworkInitWithFunctions of LightGBM's c_api.h. It is passed, so that nothing here links to LightGBM. */
typedef int (*unisono_lightgbm_init)(int machines, int rank, void* reduce_scatter, void* all_gather);

/**
 * LightGBM's calls of this thread use `world` from now on. NULL ends that; LGBM_NetworkFree() goes before it. In a world of one, LightGBM
 * stays by itself. Local. Errors: UNISONO_BAD_INPUT without `init`; UNISONO_REFUSED if `init` fails.
 */
int unisono_lightgbm_use(unisono_world* world, unisono_lightgbm_init init);

/**
 * Rounds this rank's gradients and hessians to multiples of a power of two, one for each of the two. All ranks agree on both powers, and
 * choose them so that LightGBM's sums in double are exact in any order: histograms then have the same bits on any number of ranks. A value
 * moves by at most 2^-25 of the power of two above the largest magnitude of its kind, as long as all ranks have at most 2^29 rows together;
 * each further doubling of the rows doubles that.
 * Collective; ranks may have different counts. Errors: UNISONO_NOT_FINITE on every rank if a value of any rank is not finite, with nothing
 * changed.
 */
int unisono_lightgbm_round(unisono_world* world, float* gradients, float* hessians, size_t count);

#ifdef __cplusplus
}
#endif
#endif
