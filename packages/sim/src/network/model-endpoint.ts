/** The model as one reliable connection. */
import type { ModelQp } from '../model/rc-qp.ts';
import type { ModelCompletion } from '../model/work.ts';
import type { ConnectionOptions, Endpoint, EndpointInfo, SimReceive, SimSend } from './endpoint.ts';
import { ModelDevice } from './model-device.ts';
import type { ModelDeviceOptions } from './model-host.ts';
import type { ModelQueuePair } from './model-queue-pair.ts';

export interface ModelEndpointOptions extends ModelDeviceOptions {
  /** First PSN that it sends. */
  psn: number;
}

/** The model with one queue pair, as an `Endpoint`. */
export class ModelEndpoint extends ModelDevice implements Endpoint {
  readonly #qp: ModelQueuePair;

  constructor(options: ModelEndpointOptions) {
    super(options);
    this.#qp = this.createQp({ service: 'RC', psn: options.psn });
  }

  get info(): EndpointInfo {
    return this.#qp.info;
  }

  /** The queue pair, once connected: its state is open to scenarios. */
  get qp(): ModelQp {
    return this.#qp.rc;
  }

  get state(): ModelQueuePair['state'] {
    return this.#qp.state;
  }

  connect(peer: EndpointInfo, options: ConnectionOptions): void {
    this.#qp.connect(peer, options);
  }

  postSend(request: SimSend): void {
    this.#qp.postSend(request);
  }

  postReceive(request: SimReceive): void {
    this.#qp.postReceive(request);
  }

  pollSend(): ModelCompletion[] {
    return this.#qp.pollSend();
  }

  pollReceive(): ModelCompletion[] {
    return this.#qp.pollReceive();
  }

  fail(): void {
    this.#qp.fail();
  }
}
