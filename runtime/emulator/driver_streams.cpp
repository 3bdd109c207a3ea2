// Streams, events, captures and graphs of the emulated driver.
#include "ir/support/check.h"
#include "runtime/emulator/driver_state.h"

namespace stepc::emulator {

Stream* EmulatedDevice::stream_of(CUstream handle) {
  if (handle == nullptr) return &default_stream_;
  const auto it = streams_.find(handle);
  return it == streams_.end() ? nullptr : it->second.get();
}

std::shared_ptr<Event> EmulatedDevice::event_of(CUevent handle) {
  const auto it = events_.find(handle);
  return it == events_.end() ? nullptr : it->second;
}

bool EmulatedDevice::capturing() const {
  for (const auto& [handle, stream] : streams_)
    if (stream->capture) return true;
  return false;
}

CUresult EmulatedDevice::enqueue(CUstream handle, Task task) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  Stream* stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) {
    stream->capture->tasks.push_back(std::move(task));
    return CUDA_SUCCESS;
  }
  // The default stream is in order with every blocking stream: both sides' earlier work is done first.
  if (stream == &default_stream_) {
    if (capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (auto& [other, s] : streams_)
      if (!s->non_blocking) run_stream(*s);
  } else if (!stream->non_blocking) {
    run_stream(default_stream_);
  }
  stream->items.push_back({std::move(task), nullptr, nullptr, 0});
  return sticky_;
}

bool EmulatedDevice::run_one(Stream& stream) {
  if (stream.items.empty()) return false;
  StreamItem item = std::move(stream.items.front());
  stream.items.pop_front();
  if (item.wait && item.wait->completed < item.generation && item.wait->stream)
    run_stream(*item.wait->stream, item.wait.get(), item.generation);
  if (item.record) {
    item.record->completed = std::max(item.record->completed, item.generation);
    item.record->time = std::chrono::steady_clock::now();
  }
  if (item.task && sticky_ == CUDA_SUCCESS) item.task();
  return true;
}

void EmulatedDevice::run_stream(Stream& stream, const Event* until, uint64_t generation) {
  while (!(until && until->completed >= generation) && run_one(stream)) {
  }
}

void EmulatedDevice::run_everything() {
  run_stream(default_stream_);
  for (auto& [handle, stream] : streams_) run_stream(*stream);
}

CUresult EmulatedDevice::cuCtxSynchronize() {
  if (capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  run_everything();
  return sticky_;
}

CUresult EmulatedDevice::cuStreamCreate(CUstream* stream, unsigned flags) {
  auto fresh = std::make_unique<Stream>();
  fresh->non_blocking = flags & CU_STREAM_NON_BLOCKING;
  *stream = reinterpret_cast<CUstream>(fresh.get());
  streams_[*stream] = std::move(fresh);
  return sticky_;
}

CUresult EmulatedDevice::cuStreamDestroy(CUstream stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return CUDA_ERROR_INVALID_HANDLE;
  run_stream(*it->second);
  for (auto& [handle, event] : events_)
    if (event->stream == it->second.get()) event->stream = nullptr;
  streams_.erase(it);
  return sticky_;
}

CUresult EmulatedDevice::cuStreamSynchronize(CUstream handle) {
  Stream* stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  run_stream(*stream);
  return sticky_;
}

// Each question lets the stream do one thing, so that a loop of questions ends.
CUresult EmulatedDevice::cuStreamQuery(CUstream handle) {
  Stream* stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (sticky_ == CUDA_SUCCESS && run_one(*stream)) return CUDA_ERROR_NOT_READY;
  return sticky_;
}

CUresult EmulatedDevice::capture_wait(Stream& stream, const std::shared_ptr<Event>& event) {
  // A stream that waits for an event of a capture takes part in the capture from then on.
  if (event->capture) stream.capture = event->capture;
  return event->capture ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult EmulatedDevice::cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  Stream* stream = stream_of(handle);
  const std::shared_ptr<Event> event = event_of(event_handle);
  if (!stream || !event) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture || event->capture) return capture_wait(*stream, event);
  if (event->recorded > 0) stream->items.push_back({nullptr, event, nullptr, event->recorded});
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuEventCreate(CUevent* event, unsigned) {
  auto fresh = std::make_shared<Event>();
  *event = reinterpret_cast<CUevent>(fresh.get());
  events_[*event] = std::move(fresh);
  return sticky_;
}

CUresult EmulatedDevice::cuEventDestroy(CUevent event) {
  return events_.erase(event) == 1 ? sticky_ : CUDA_ERROR_INVALID_HANDLE;
}

CUresult EmulatedDevice::cuEventRecord(CUevent event_handle, CUstream handle) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  Stream* stream = stream_of(handle);
  const std::shared_ptr<Event> event = event_of(event_handle);
  if (!stream || !event) return CUDA_ERROR_INVALID_HANDLE;
  event->capture = stream->capture;
  if (stream->capture) return CUDA_SUCCESS;
  event->stream = stream;
  stream->items.push_back({nullptr, nullptr, event, ++event->recorded});
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuEventSynchronize(CUevent handle) {
  const std::shared_ptr<Event> event = event_of(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (event->stream) run_stream(*event->stream, event.get(), event->recorded);
  return sticky_;
}

CUresult EmulatedDevice::cuEventQuery(CUevent handle) {
  const std::shared_ptr<Event> event = event_of(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->completed < event->recorded && event->stream) run_one(*event->stream);
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  return event->completed < event->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  const std::shared_ptr<Event> a = event_of(from), b = event_of(to);
  if (!a || !b || a->recorded == 0 || b->recorded == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (a->completed < a->recorded || b->completed < b->recorded) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(b->time - a->time).count();
  return sticky_;
}

// ---- captures and graphs
CUresult EmulatedDevice::cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  const auto it = streams_.find(handle);  // the default stream cannot be captured
  if (it == streams_.end()) return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (it->second->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  it->second->capture = std::make_shared<CaptureState>();
  it->second->capture->origin = handle;
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  Stream* stream = stream_of(handle);
  *graph = nullptr;
  if (!stream || !stream->capture || stream->capture->origin != handle) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<CaptureState> capture = stream->capture;
  for (auto& [other, s] : streams_)
    if (s->capture == capture) s->capture = nullptr;
  for (auto& [other, event] : events_)
    if (event->capture == capture) event->capture = nullptr;
  auto tasks = std::make_unique<std::vector<Task>>(std::move(capture->tasks));
  *graph = reinterpret_cast<CUgraph>(tasks.get());
  graphs_[*graph] = std::move(tasks);
  return sticky_;
}

CUresult EmulatedDevice::cuGraphInstantiate(CUgraphExec* instance, CUgraph graph, unsigned long long) {
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto copy = std::make_unique<std::vector<Task>>(*it->second);
  *instance = reinterpret_cast<CUgraphExec>(copy.get());
  graph_instances_[*instance] = std::move(copy);
  return sticky_;
}

CUresult EmulatedDevice::cuGraphLaunch(CUgraphExec instance, CUstream stream) {
  const auto it = graph_instances_.find(instance);
  if (it == graph_instances_.end()) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(stream, [this, tasks = *it->second] {
    for (const Task& task : tasks)
      if (sticky_ == CUDA_SUCCESS) task();
  });
}

CUresult EmulatedDevice::cuGraphExecDestroy(CUgraphExec instance) {
  return graph_instances_.erase(instance) == 1 ? sticky_ : CUDA_ERROR_INVALID_HANDLE;
}

CUresult EmulatedDevice::cuGraphDestroy(CUgraph graph) {
  return graphs_.erase(graph) == 1 ? sticky_ : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace stepc::emulator
