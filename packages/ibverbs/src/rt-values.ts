/** The clock of completion timestamps: ibv_query_rt_values_ex(3). */
import { checkMask } from './arguments.ts';
import { status } from './errno.ts';
import { given, type ibv_context, verbsOf } from './objects.ts';

/** `raw_clock` is asked for. */
export const IBV_VALUES_MASK_RAW_CLOCK = 1 << 0;

/** `struct ibv_values_ex`. */
export interface ibv_values_ex {
  /** The values to read. */
  comp_mask: number;
  /** `struct timespec`. */
  raw_clock?: { tv_sec: number; tv_nsec: number };
}

/** ibv_query_rt_values_ex(3): fills `raw_clock` with what `ibv_wc_read_completion_ts` would give now. EINVAL for other values. */
export function ibv_query_rt_values_ex(context: ibv_context, values: ibv_values_ex): Promise<number> {
  return status(() => {
    verbsOf('context', context);
    const { comp_mask } = given('values', values);
    checkMask('values.comp_mask', comp_mask, IBV_VALUES_MASK_RAW_CLOCK, 'IBV_VALUES_MASK_RAW_CLOCK');
    if (comp_mask === 0) return;
    const [tv_sec, tv_nsec] = process.hrtime();
    values.raw_clock = { tv_sec, tv_nsec };
  });
}
