/** Asynchronous events. */
import type { DeviceEvent, TakenEvent } from '@node-roce/verbs-api';
import * as c from './constants.ts';
import { minusOne } from './errno.ts';
import { type ibv_context, ibv_cq, ibv_qp, ibv_srq, structOf, verbsOf } from './objects.ts';
import type { ibv_async_event } from './structs.ts';

/** `enum ibv_event_type` of each event. */
export const EVENT_CODES: Record<DeviceEvent['type'], number> = {
  CQ_ERR: c.IBV_EVENT_CQ_ERR,
  QP_FATAL: c.IBV_EVENT_QP_FATAL,
  QP_REQ_ERR: c.IBV_EVENT_QP_REQ_ERR,
  QP_ACCESS_ERR: c.IBV_EVENT_QP_ACCESS_ERR,
  COMM_EST: c.IBV_EVENT_COMM_EST,
  SQ_DRAINED: c.IBV_EVENT_SQ_DRAINED,
  PATH_MIG: c.IBV_EVENT_PATH_MIG,
  PATH_MIG_ERR: c.IBV_EVENT_PATH_MIG_ERR,
  DEVICE_FATAL: c.IBV_EVENT_DEVICE_FATAL,
  PORT_ACTIVE: c.IBV_EVENT_PORT_ACTIVE,
  PORT_ERR: c.IBV_EVENT_PORT_ERR,
  SRQ_ERR: c.IBV_EVENT_SRQ_ERR,
  SRQ_LIMIT_REACHED: c.IBV_EVENT_SRQ_LIMIT_REACHED,
  QP_LAST_WQE_REACHED: c.IBV_EVENT_QP_LAST_WQE_REACHED,
  GID_CHANGE: c.IBV_EVENT_GID_CHANGE,
};

/** Under a symbol, so that a copy of the struct can be acknowledged in its place, as in C. */
const TAKEN = Symbol('taken');
type Filled = ibv_async_event & { [TAKEN]?: TakenEvent };

/**
 * ibv_get_async_event(3): waits for the next event and fills `event`. Each has to be acknowledged. 0; −1 with errno
 * ECANCELED where the device is closed. There is no `async_fd`.
 */
export function ibv_get_async_event(context: ibv_context, event: ibv_async_event): Promise<0 | -1> {
  return minusOne(async () => {
    for (;;) {
      const taken = await verbsOf('context', context).getEvent();
      const element = elementOf(taken.event);
      if (!element) {
        // About something that was destroyed meanwhile: libibverbs shows none such.
        taken.ack();
        continue;
      }
      const filled: Filled = { event_type: EVENT_CODES[taken.event.type], element, [TAKEN]: taken };
      Object.assign(event, filled);
      return;
    }
  });
}

function elementOf(event: DeviceEvent): ibv_async_event['element'] {
  if ('portNum' in event) return { port_num: event.portNum };
  if (event.type === 'DEVICE_FATAL') return {};
  const struct = event.element && structOf(event.element);
  if (struct instanceof ibv_qp) return { qp: struct };
  if (struct instanceof ibv_cq) return { cq: struct };
  if (struct instanceof ibv_srq) return { srq: struct };
  return undefined;
}

/** ibv_ack_async_event(3): until then the destruction of what the event is about waits. */
export function ibv_ack_async_event(event: ibv_async_event): void {
  (event as Filled)[TAKEN]?.ack();
}
