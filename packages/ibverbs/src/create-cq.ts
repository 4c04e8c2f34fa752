/** The completion queue of verbs-api behind an `ibv_cq`. */
import { invalid } from '@node-roce/transport';
import type { CompletionQueue, CompletionQueueOptions } from '@node-roce/verbs-api';
import { type ibv_comp_channel, type ibv_context, verbsOf } from './objects.ts';

/** Creates it with the arguments of ibv_create_cq(3); throws where those are wrong. */
export function createCq(
  context: ibv_context,
  cqe: number,
  cq_context: unknown,
  channel: ibv_comp_channel | null,
  comp_vector: number,
  contents: Pick<CompletionQueueOptions, 'timestamps' | 'tags'> = {},
): Promise<CompletionQueue> {
  const { num_comp_vectors } = context;
  if (!(Number.isInteger(comp_vector) && comp_vector >= 0 && comp_vector < num_comp_vectors))
    throw invalid('comp_vector', `${comp_vector}`, `0 … ${num_comp_vectors - 1}`);
  const options = { context: cq_context, ...contents };
  return verbsOf('context', context).createCq(
    cqe,
    channel ? { ...options, channel: verbsOf('channel', channel) } : options,
  );
}
