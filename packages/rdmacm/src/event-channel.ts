/** Channels of events as programs make them: their ids are `CmId`s, which know channels without knowing this module. */
import type { CmId } from './cm-id.ts';
import { type IdEvent, IdEventChannel } from './events.ts';

/** An event of an id (`struct rdma_cm_event`). */
export type CmIdEvent<Id = CmId> = IdEvent<Id>;

/** Events of all ids that were made with it, in order (rdma_create_event_channel(3)). */
export class EventChannel<Id = CmId> extends IdEventChannel<Id> {}
