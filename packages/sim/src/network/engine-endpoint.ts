/** The engine as one reliable connection. */
import type { QpState } from '@node-roce/transport';
import type { ModelCompletion } from '../model/work.ts';
import type { ConnectionOptions, Endpoint, EndpointInfo, SimReceive, SimSend } from './endpoint.ts';
import { EngineDevice, type EngineDeviceOptions } from './engine-device.ts';
import type { EngineQp } from './engine-queue-pair.ts';

export interface EngineEndpointOptions extends EngineDeviceOptions {
  /** First PSN that it sends. */
  psn: number;
}

/** The engine with one queue pair, as an `Endpoint`. */
export class EngineEndpoint extends EngineDevice implements Endpoint {
  readonly #qp: EngineQp;

  constructor(options: EngineEndpointOptions) {
    super(options);
    this.#qp = this.createQp({ service: 'RC', psn: options.psn });
  }

  get info(): EndpointInfo {
    return this.#qp.info;
  }

  get state(): QpState {
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
