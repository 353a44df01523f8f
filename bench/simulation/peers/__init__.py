"""Other engines' scheduling policies, to compare with: the simulator has them, the service
does not. Each file says which source it follows and what it leaves out."""

PEERS = {
    "vllm-fcfs": "bench.simulation.peers.vllm:VLLMFCFS",
    "vllm-priority": "bench.simulation.peers.vllm:VLLMPriority",
    "sglang-lpm": "bench.simulation.peers.sglang_lpm:SGLangLPM",
    "sglang-priority": "bench.simulation.peers.sglang_priority:SGLangPriority",
    "mlfq": "bench.simulation.peers.mlfq:MLFQ",
    "vtc": "bench.simulation.peers.vtc:VTC",
}
