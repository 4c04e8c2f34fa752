/** Enhanced connection establishment: options of a vendor's adapters, of which this one has none. */
import { invalid } from '@node-roce/transport';
import { status } from './errno.ts';
import { given, type ibv_qp, stateOf } from './objects.ts';

/** `struct ibv_ece`. */
export interface ibv_ece {
  /** IEEE OUI of the vendor whose options they are; 0 without any. */
  vendor_id: number;
  options: number;
  /** 0. */
  comp_mask?: number;
}

/** ibv_query_ece(3): fills `ece` with zeros, for a vendor that has no options. */
export function ibv_query_ece(qp: ibv_qp, ece: Partial<ibv_ece>): Promise<number> {
  return status(() => {
    stateOf(qp);
    Object.assign(given('ece', ece), { vendor_id: 0, options: 0, comp_mask: 0 } satisfies ibv_ece);
  });
}

/** ibv_set_ece(3): takes zeros, which ask for nothing. EINVAL for options, which are those of another vendor. */
export function ibv_set_ece(qp: ibv_qp, ece: ibv_ece): Promise<number> {
  return status(() => {
    stateOf(qp);
    const { vendor_id, options, comp_mask = 0 } = given('ece', ece);
    for (const [name, value] of Object.entries({ vendor_id, options, comp_mask }))
      if (value !== 0) throw invalid(`ece.${name}`, `0x${Number(value).toString(16)}`, '0: no options');
  });
}
